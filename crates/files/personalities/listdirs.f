# Lists the directories of a tree.
set $dir=/tmp
set $nfiles=50000
set $meandirwidth=20
set $meanfilesize=1k
set $filesize=randvar(type=gamma,mean=$meanfilesize,gamma=1500)
set $nthreads=16
define fileset name=bigfileset,path=$dir,size=$filesize,entries=$nfiles,dirwidth=$meandirwidth,prealloc=100
define process name=lister1,instances=1 {
  thread name=lister1,memsize=10m,instances=$nthreads {
    flowop listdir name=list1,filesetname=bigfileset
  }
}
run 60
