# Opens and closes files of a large tree.
set $dir=/tmp
set $nfiles=50000
set $meandirwidth=100
set $meanfilesize=1k
set $filesize=randvar(type=gamma,mean=$meanfilesize,gamma=1500)
set $nthreads=16
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth,prealloc=100
define process name=opener1,instances=1 {
  thread name=opener1,memsize=10m,instances=$nthreads {
    flowop openfile name=open1,filesetname=bigfileset,fd=1
    flowop closefile name=close1,fd=1
  }
}
run 60
