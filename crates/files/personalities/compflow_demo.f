# Shows composite flowops: flowops that a program defines, with parameters, one within the other.
set $dir=/tmp
set $nfiles=700
set $filesize=16k
set $iosize=4k
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=20,prealloc=60
define flowop name=readone,$set,$size=8k {
  flowop openfile name=openread1,filesetname=$set,fd=1
  flowop readwholefile name=readall1,fd=1,iosize=$size
  flowop closefile name=closeread1,fd=1
}
define flowop name=replaceone,$set {
  flowop createfile name=createnew1,filesetname=$set,fd=1
  flowop writewholefile name=writeall1,fd=1,iosize=64k
  flowop closefile name=closenew1,fd=1
  flowop deletefile name=deleteold1,filesetname=$set
}
define flowop name=mixed,$set,$reads=3 {
  flowop readone name=reading1,$set=$set,$size=$iosize,iters=$reads
  flowop replaceone name=replacing1,$set=$set
}
define process name=demo1,instances=1 {
  thread name=demo1,memsize=1m,instances=4 {
    flowop mixed name=mixed1,$set=bigfileset
    flowop mixed name=mixed2,$set=bigfileset,$reads=1,iters=2
  }
}
run 60
