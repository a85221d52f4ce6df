# Shows composite flowops: flowops that a program defines, with parameters, one within the other.
set $dir=/tmp
set $nfiles=700
set $filesize=16k
set $iosize=4k
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=20,prealloc=60
define flowop name=readone,$set,$size=8k {
  flowop openfile name=openread,filesetname=$set,fd=1
  flowop readwholefile name=readall,fd=1,iosize=$size
  flowop closefile name=closeread,fd=1
}
define flowop name=replaceone,$set {
  flowop createfile name=createnew,filesetname=$set,fd=1
  flowop writewholefile name=writeall,fd=1,iosize=64k
  flowop closefile name=closenew,fd=1
  flowop deletefile name=deleteold,filesetname=$set
}
define flowop name=mixed,$set,$reads=3 {
  flowop readone name=reading,$set=$set,$size=$iosize,iters=$reads
  flowop replaceone name=replacing,$set=$set
}
define process name=demo,instances=1 {
  thread name=demo,memsize=1m,instances=4 {
    flowop mixed name=mixed1,$set=bigfileset
    flowop mixed name=mixed2,$set=bigfileset,$reads=1,iters=2
  }
}
run 60
